#pragma once
// What the operating system says about this process. Read once per step, so it costs microseconds.
#include <cstdint>
#include <string>

namespace loom {

struct ProcessMemory {
  int64_t resident = 0;  // bytes now in memory
  int64_t peak = 0;      // most so far
};

// Zeros where the system does not say.
ProcessMemory process_memory();

// Of this machine, fit for a file's name; "host" where the system does not say.
std::string host_name();

}  // namespace loom
