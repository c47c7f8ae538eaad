#pragma once
// The one place that states the version; CMake reads it from here.
namespace loom {
inline constexpr const char* kVersion = "0.1.0";
}
