# omniloom_add_plugin(NAME KIND encoder|connector|backbone [VERSION v] SOURCES ... [LIBS ...] [STATIC] [OUTPUT dir] [NO_INSTALL])
#
# One set of sources, two forms: a loadable lib<NAME>.omniloom.so, or (STATIC, or OMNILOOM_STATIC_PLUGINS in the tree) an object
# library that the program links, listed in a generated table. Works inside the tree and from an installed package.
#
# Link rules of the loadable form: nodelete (autograd graphs, exceptions and thread-locals of a plugin outlive any handle), defs (an
# undefined symbol is an error now, not at dlopen), hidden symbols (two plugins must not see each other). No version script and no
# -fno-gnu-unique: both would give the plugin inline statics of LibTorch's headers of its own.
function(omniloom_add_plugin name)
  cmake_parse_arguments(ARG "STATIC;NO_INSTALL" "KIND;OUTPUT" "SOURCES;LIBS" ${ARGN})
  if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
    message(FATAL_ERROR "omniloom_add_plugin: '${name}' is not a plugin name; use small letters, digits and _")
  endif()
  if(NOT ARG_KIND MATCHES "^(encoder|connector|backbone)$")
    message(FATAL_ERROR "omniloom_add_plugin(${name}): KIND must be encoder, connector or backbone, found '${ARG_KIND}'")
  endif()

  set(objects ${name}_plugin_objects)
  add_library(${objects} OBJECT ${ARG_SOURCES})
  set_target_properties(${objects} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  target_compile_features(${objects} PRIVATE cxx_std_20)
  if(TARGET loom_options)
    target_link_libraries(${objects} PRIVATE loom_options)
    target_include_directories(${objects} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
    target_link_libraries(${objects} PRIVATE LibTorch::cpu ${ARG_LIBS})
    add_dependencies(${objects} omniloom_fingerprint)
    if(OMNILOOM_PCH)
      target_precompile_headers(${objects} REUSE_FROM loom_pch)
    endif()
  else()
    target_link_libraries(${objects} PRIVATE omniloom::core ${ARG_LIBS})
    # This project's LibTorch, which may be another one than the core's; the loader compares them.
    target_compile_definitions(${objects} PRIVATE OMNILOOM_TORCH_VERSION="${LibTorch_VERSION}"
      OMNILOOM_TORCH_BUILD="${LibTorch_BUILD_ID}")
  endif()

  if(ARG_STATIC OR OMNILOOM_STATIC_PLUGINS)
    set_property(GLOBAL APPEND PROPERTY OMNILOOM_BUILTIN_PLUGINS ${name})
    return()
  endif()

  add_library(${name}_plugin MODULE $<TARGET_OBJECTS:${objects}>)
  set_target_properties(${name}_plugin PROPERTIES PREFIX "lib" OUTPUT_NAME ${name} SUFFIX ".omniloom.so" LINKER_LANGUAGE CXX)
  if(TARGET loom_options)
    if(NOT ARG_OUTPUT)
      set(ARG_OUTPUT ${CMAKE_BINARY_DIR}/lib/omniloom/plugins)
    endif()
    target_link_libraries(${name}_plugin PRIVATE omniloom_core loom_options ${ARG_LIBS})
    set_target_properties(${name}_plugin PROPERTIES INSTALL_RPATH "$ORIGIN/../..;${LibTorch_ROOT}/lib")
    if(NOT ARG_NO_INSTALL)
      install(TARGETS ${name}_plugin LIBRARY DESTINATION lib/omniloom/plugins)
    endif()
  else()
    if(NOT ARG_OUTPUT)
      set(ARG_OUTPUT ${CMAKE_BINARY_DIR})
    endif()
    target_link_libraries(${name}_plugin PRIVATE omniloom::core ${ARG_LIBS})
    if(NOT ARG_NO_INSTALL)
      install(TARGETS ${name}_plugin LIBRARY DESTINATION lib/omniloom/plugins)
    endif()
  endif()
  set_target_properties(${name}_plugin PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${ARG_OUTPUT})
  target_link_options(${name}_plugin PRIVATE -Wl,-z,nodelete -Wl,--exclude-libs,ALL)
  if(NOT OMNILOOM_SANITIZE)
    target_link_options(${name}_plugin PRIVATE -Wl,-z,defs)
  endif()
endfunction()
