#pragma once
// Ctrl-C and SIGTERM ask politely: the step ends, the run is saved, the program leaves with 130 or 143. A Ctrl-C after
// that means now. The handler only sets a flag; everything else happens where the training loop looks at it.
namespace loom {

// From here on SIGINT and SIGTERM are requests. Call once, in main.
void install_signal_handlers();
// Somebody asked the program to stop.
bool stop_requested();
// 130 after SIGINT, 143 after SIGTERM, 0 when nobody asked.
int stop_exit_code();
// Forgets a request. For tests.
void clear_stop_request();

}  // namespace loom
