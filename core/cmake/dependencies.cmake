# Everything that comes from outside the tree, as imported targets.
find_package(Threads REQUIRED)
find_package(LibTorch 2.8 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
# PCRE2's own CMake config is not in every distribution.
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(PCRE2::8bit INTERFACE IMPORTED)
target_include_directories(PCRE2::8bit SYSTEM INTERFACE ${PCRE2_INCLUDE})
target_link_libraries(PCRE2::8bit INTERFACE ${PCRE2_LIBRARY})
# Debian's single -dev packages of OpenCV carry no CMake config.
find_path(OpenCV_INCLUDE opencv2/imgcodecs.hpp PATH_SUFFIXES opencv4 REQUIRED)
add_library(OpenCV::imgcodecs INTERFACE IMPORTED)
target_include_directories(OpenCV::imgcodecs SYSTEM INTERFACE ${OpenCV_INCLUDE})
foreach(_module core imgproc imgcodecs)
  find_library(OpenCV_${_module} opencv_${_module} REQUIRED)
  target_link_libraries(OpenCV::imgcodecs INTERFACE ${OpenCV_${_module}})
endforeach()
find_package(Boost 1.74 REQUIRED)  # header only: Boost.DLL
message(STATUS "LibTorch ${LibTorch_VERSION} at ${LibTorch_ROOT}")
