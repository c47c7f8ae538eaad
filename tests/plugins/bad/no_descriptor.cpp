// A shared library that is no plugin.
extern "C" __attribute__((visibility("default"))) int some_function() { return 1; }
