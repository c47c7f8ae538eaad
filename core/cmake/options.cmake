# Compile flags of our own code: one interface target that every target of the tree links.
add_library(loom_options INTERFACE)
target_compile_features(loom_options INTERFACE cxx_std_20)
target_compile_options(loom_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<BOOL:${OMNILOOM_WARNINGS_ARE_ERRORS}>:-Werror> -fno-math-errno)
# gcc 12 reports impossible overlaps inside std::string's own insert and operator+ (its bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(loom_options INTERFACE -Wno-restrict)
endif()
if(NOT OMNILOOM_FUZZ)  # clang's sanitizers are archives, whose malloc every shared library must see
  target_link_options(loom_options INTERFACE -Wl,--exclude-libs,ALL)
endif()
if(OMNILOOM_SANITIZE)
  target_compile_options(loom_options INTERFACE -O1 -g1 -fsanitize=${OMNILOOM_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # instrumented code defeats its flow analysis
    target_compile_options(loom_options INTERFACE -Wno-maybe-uninitialized)
    if(OMNILOOM_SANITIZE MATCHES "thread")  # LibTorch's reference counts use a fence, which ThreadSanitizer does not see
      target_compile_options(loom_options INTERFACE -Wno-tsan)
    endif()
  endif()
  target_link_options(loom_options INTERFACE -fsanitize=${OMNILOOM_SANITIZE})
else()
  target_link_options(loom_options INTERFACE -Wl,-z,defs)
endif()
# omniloom_own_executable(NAME libraries...): a program of the tree that is not installed: tests, benches, checks.
function(omniloom_own_executable name)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(${name} PRIVATE ${ARGN} loom_options)
  # The precompiled header was made with -fPIC; CMake would give an executable -fPIE, and gcc would then refuse the header.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  if(OMNILOOM_PCH)
    target_precompile_headers(${name} REUSE_FROM loom_pch)
  endif()
endfunction()
find_program(MOLD mold)
if(MOLD AND NOT OMNILOOM_SANITIZE)
  target_link_options(loom_options INTERFACE -fuse-ld=mold)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
