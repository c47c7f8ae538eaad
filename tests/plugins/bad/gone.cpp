// A library that is there when the plugin is linked and cannot be found when it is loaded.
extern "C" __attribute__((visibility("default"))) int gone_answer() { return 42; }
