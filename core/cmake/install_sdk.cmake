# What `cmake --install` leaves behind: the program, the core, the tree's plugins (AddPlugin.cmake), the public headers with the
# fingerprint they were hashed into, templates, and a package that find_package(omniloom) reads.
set(_package lib/cmake/omniloom)
install(TARGETS omniloom_core EXPORT omniloomTargets LIBRARY DESTINATION lib)
set_target_properties(omniloom_core PROPERTIES EXPORT_NAME core)
if(TARGET omniloom)
  install(TARGETS omniloom RUNTIME DESTINATION bin)
endif()

foreach(_header IN LISTS OMNILOOM_SDK_HEADERS)
  get_filename_component(_folder ${_header} DIRECTORY)
  install(FILES ${_header} DESTINATION include/omniloom/${_folder})
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/generated/plugins/sdk/fingerprint.h DESTINATION include/omniloom/plugins/sdk)

install(EXPORT omniloomTargets NAMESPACE omniloom:: DESTINATION ${_package})
include(CMakePackageConfigHelpers)
configure_package_config_file(plugins/cmake/omniloomConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/omniloomConfig.cmake
  INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/omniloomConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/omniloomConfig.cmake ${CMAKE_BINARY_DIR}/generated/omniloomConfigVersion.cmake
  plugins/cmake/AddPlugin.cmake core/cmake/FindLibTorch.cmake DESTINATION ${_package})

install(DIRECTORY plugins/template/encoder plugins/template/connector plugins/template/backbone
  DESTINATION share/omniloom/template)
install(FILES LICENSE NOTICE DESTINATION share/doc/omniloom)
