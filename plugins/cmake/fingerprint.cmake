# Makes generated/plugins/sdk/fingerprint.h: a hash over every public header and what LibTorch this build uses. It is made at build
# time, because a header may change without a new configure run; it is rewritten only when its text changes.
# As a script: cmake -DTEMPLATE=... -DOUTPUT=... -DHEADERS=a|b|c -DROOT=... -P fingerprint.cmake
if(CMAKE_SCRIPT_MODE_FILE)
  string(REPLACE "|" ";" HEADERS "${HEADERS}")
  set(all "")
  foreach(header IN LISTS HEADERS)
    file(SHA256 ${ROOT}/${header} hash)
    string(APPEND all "${header} ${hash}\n")
  endforeach()
  string(SHA256 hash "${all}")
  string(SUBSTRING ${hash} 0 12 OMNILOOM_HEADERS_HASH)
  configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
  return()
endif()

# What a plugin's author sees, relative to the root of the tree; of the folders that plugins do not include, what core/model's headers need.
file(GLOB OMNILOOM_SDK_HEADERS CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} plugins/sdk/*.h core/base/*.h core/config/*.h
  core/step/*.h core/nn/*.h core/nn/ops/*.h core/model/*.h core/parallel/unit_buffer.h core/parallel/slab_pool.h core/reshard/redistribute.h
  core/comm/communicator.h core/mesh/box.h core/mesh/rank_group.h)
list(REMOVE_ITEM OMNILOOM_SDK_HEADERS core/model/model_pass.h)
list(SORT OMNILOOM_SDK_HEADERS)
list(JOIN OMNILOOM_SDK_HEADERS "|" _headers)
set(_fingerprint ${CMAKE_BINARY_DIR}/generated/plugins/sdk/fingerprint.h)
set(_arguments -DTEMPLATE=${CMAKE_SOURCE_DIR}/plugins/sdk/fingerprint.h.in -DOUTPUT=${_fingerprint} -DROOT=${CMAKE_SOURCE_DIR}
  "-DHEADERS=${_headers}" -DPROJECT_VERSION=${PROJECT_VERSION} -DLibTorch_VERSION=${LibTorch_VERSION}
  -DLibTorch_BUILD_ID=${LibTorch_BUILD_ID} -DOMNILOOM_CUDA=${OMNILOOM_CUDA_VERSION} -P ${CMAKE_CURRENT_LIST_FILE})
add_custom_command(OUTPUT ${_fingerprint} COMMAND ${CMAKE_COMMAND} ${_arguments} VERBATIM COMMENT "Fingerprint of the plugin SDK"
  DEPENDS ${OMNILOOM_SDK_HEADERS} plugins/sdk/fingerprint.h.in ${CMAKE_CURRENT_LIST_FILE} core/base/version.h)
add_custom_target(omniloom_fingerprint DEPENDS ${_fingerprint})
