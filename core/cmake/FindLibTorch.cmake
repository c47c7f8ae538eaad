# Finds LibTorch without TorchConfig.cmake, which demands a whole CUDA toolkit when the wheel was built with CUDA.
# Input:  TORCH_PREFIX (a folder with include/ and lib/, e.g. site-packages/torch; variable or environment), CMAKE_PREFIX_PATH,
#         LibTorch_DEFAULT_ROOT (set by an installed package), the active python3, .deps/ of the tree. The first one found wins.
# Output: targets LibTorch::cpu and, when present, LibTorch::cuda; LibTorch_VERSION, LibTorch_ROOT, LibTorch_BUILD_ID
set(_hints ${TORCH_PREFIX} $ENV{TORCH_PREFIX})
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
  list(APPEND _hints ${_prefix} ${_prefix}/torch)
endforeach()
list(APPEND _hints ${LibTorch_DEFAULT_ROOT})
set(_markers include/torch/headeronly/version.h include/torch/csrc/api/include/torch/version.h)
find_path(LibTorch_ROOT NAMES ${_markers} PATHS ${_hints} NO_DEFAULT_PATH)
if(NOT LibTorch_ROOT)
  find_program(LibTorch_PYTHON NAMES python3)
  mark_as_advanced(LibTorch_PYTHON)
  if(LibTorch_PYTHON)
    execute_process(OUTPUT_VARIABLE _of_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET COMMAND ${LibTorch_PYTHON} -c
      "import importlib.util as u; s=u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')")
  endif()
  file(GLOB _of_deps ${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch)
  find_path(LibTorch_ROOT NAMES ${_markers} PATHS ${_of_python} ${_of_deps} NO_DEFAULT_PATH)
endif()

find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
find_library(LibTorch_CUDA_LIBRARY torch_cuda PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_CUDA_LIBRARY)

unset(LibTorch_VERSION)
if(LibTorch_ROOT AND LibTorch_CPU_LIBRARY)
  foreach(_header headeronly/version.h csrc/api/include/torch/version.h)
    if(EXISTS ${LibTorch_ROOT}/include/torch/${_header} AND NOT LibTorch_VERSION)
      file(STRINGS ${LibTorch_ROOT}/include/torch/${_header} _lines REGEX "TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
      list(JOIN _numbers "." LibTorch_VERSION)
    endif()
  endforeach()
  # A version does not identify a build (two wheels of one version differ); the linker's build id does.
  execute_process(COMMAND readelf -n ${LibTorch_CPU_LIBRARY} OUTPUT_VARIABLE _notes ERROR_QUIET)
  if(_notes MATCHES "Build ID: ([0-9a-f]+)")
    set(LibTorch_BUILD_ID ${CMAKE_MATCH_1})
  else()
    file(SIZE ${LibTorch_CPU_LIBRARY} _size)
    set(LibTorch_BUILD_ID size-${_size})
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_ROOT LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY
  VERSION_VAR LibTorch_VERSION REASON_FAILURE_MESSAGE "run make setup, or give -DTORCH_PREFIX=<folder with include/ and lib/>")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE
    ${LibTorch_ROOT}/include ${LibTorch_ROOT}/include/torch/csrc/api/include)
  target_link_libraries(LibTorch::cpu INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
  target_compile_features(LibTorch::cpu INTERFACE cxx_std_20)
  if(LibTorch_CUDA_LIBRARY)
    add_library(LibTorch::cuda INTERFACE IMPORTED)
    target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu ${LibTorch_CUDA_LIBRARY})
  endif()
endif()
