# The kinds of target in this tree. Includes are rooted at the source folder ("worker/ring/ring.h").
get_filename_component(metp_source_dir ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)

# metp_library(NAME SOURCES a.cc ... DEPS ...): static library metp_NAME.
function(metp_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(metp_${name} STATIC ${A_SOURCES})
  target_include_directories(metp_${name} PUBLIC ${metp_source_dir})
  target_link_libraries(metp_${name} PUBLIC ${A_DEPS} PRIVATE metp_warnings ${A_PRIVATE_DEPS})
endfunction()

# metp_program(NAME SOURCES a.cc ... DEPS ...): build/bin/NAME.
function(metp_program name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${metp_source_dir})
  target_link_libraries(${name} PRIVATE ${A_DEPS} metp_warnings)
endfunction()

# metp_module(NAME SOURCES a.cc ... DEPS ...): build/bin/NAME.so, loaded at run time.
function(metp_module name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} MODULE ${A_SOURCES})
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  target_include_directories(${name} PRIVATE ${metp_source_dir})
  target_compile_definitions(${name} PRIVATE METP_VERSION="${PROJECT_VERSION}")
  target_link_libraries(${name} PRIVATE ${A_DEPS} metp_warnings)
endfunction()

# metp_portable(TARGET): with `cmake --install build --component gpu --prefix DIR`, DIR holds this program or module and,
# beside it, the shared libraries that it needs, except CUDA's and the C library's: those are the other machine's own.
function(metp_portable target)
  # The older kind of search path holds for the libraries of libraries too.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  # In the build tree too: CMake's room for a later path would be an empty one, which is the current folder.
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN;/usr/local/cuda/lib64" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${target} RUNTIME_DEPENDENCY_SET ${target}_needs
          RUNTIME DESTINATION . COMPONENT gpu EXCLUDE_FROM_ALL
          LIBRARY DESTINATION . COMPONENT gpu EXCLUDE_FROM_ALL)
  install(RUNTIME_DEPENDENCY_SET ${target}_needs
          PRE_EXCLUDE_REGEXES "^lib(cuda|cudart|cublas|cublasLt|nccl|nvrtc|nvJitLink|nvidia-.*)[.]so"
                              "^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util))[.]so"
          LIBRARY DESTINATION . COMPONENT gpu EXCLUDE_FROM_ALL)
endfunction()

# Sets OUT to TRUE when TARGET links gRPC, directly or through other targets; to FALSE when not.
function(metp_links_grpc target out)
  set(seen)
  set(todo ${target})
  set(${out} FALSE PARENT_SCOPE)
  while(todo)
    list(POP_FRONT todo next)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" next "${next}")
    if(next MATCHES "^gRPC::")
      set(${out} TRUE PARENT_SCOPE)
      return()
    endif()
    if(NOT TARGET "${next}" OR next IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${next})
    foreach(property IN ITEMS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(links ${next} ${property})
      if(links)
        list(APPEND todo ${links})
      endif()
    endforeach()
  endwhile()
endfunction()

# metp_test(NAME SOURCES a_test.cc ... DEPS ... [TIMEOUT seconds] [LABELS label] [SERIAL]):
# build/bin/NAME_test; every case becomes a ctest entry Suite.Case. Tests find data through METP_SOURCE_DIR and programs
# through METP_BINARY_DIR (both compile definitions). Labels: `long` (run by tests/run.sh --long only), `release_only` (not
# under sanitizers), and with `services` (below) `services-long` and `services-release_only`.
# `services`: starts programs that link gRPC. Under thread sanitizer these and the tests that link gRPC themselves are left
# out (its callbacks are reported falsely); the others, and the program that they may start, are the target
# metp_thread_tests.
if(METP_SANITIZE STREQUAL "thread")
  add_custom_target(metp_thread_tests)
endif()
function(metp_test name)
  cmake_parse_arguments(A "SERIAL" "TIMEOUT;LABELS" "SOURCES;DEPS" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  add_executable(${name}_test ${A_SOURCES})
  target_include_directories(${name}_test PRIVATE ${metp_source_dir})
  target_compile_definitions(${name}_test PRIVATE METP_SOURCE_DIR="${metp_source_dir}"
                             METP_BINARY_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
                             METP_SANITIZED=$<BOOL:${METP_SANITIZE}>)
  target_link_libraries(${name}_test PRIVATE ${A_DEPS} GTest::gmock GTest::gtest GTest::gtest_main metp_warnings)
  if(METP_SANITIZE STREQUAL "thread")
    metp_links_grpc(${name}_test grpc)
    if(grpc OR "${A_LABELS}" MATCHES "services")
      set_target_properties(${name}_test PROPERTIES EXCLUDE_FROM_ALL TRUE)
      return()
    endif()
    add_dependencies(metp_thread_tests ${name}_test)
    if(TARGET metp-rank)
      add_dependencies(metp_thread_tests metp-rank)
    endif()
  endif()
  if(METP_SANITIZE)
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * 5")
  endif()
  set(properties TIMEOUT ${A_TIMEOUT})
  if(A_LABELS)
    list(APPEND properties LABELS ${A_LABELS})
  endif()
  if(A_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
                       PROPERTIES ${properties})
endfunction()
include(GoogleTest)

# metp_fuzz(NAME SOURCES a_fuzz.cc DEPS ...): build/bin/NAME_fuzz, a libFuzzer program (with -DMETP_FUZZ=ON). Inputs to
# start from lie in tests/fuzz/corpus/NAME/, if there are any.
function(metp_fuzz name)
  if(NOT METP_FUZZ)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name}_fuzz ${A_SOURCES})
  target_include_directories(${name}_fuzz PRIVATE ${metp_source_dir})
  target_link_libraries(${name}_fuzz PRIVATE ${A_DEPS} metp_warnings)
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
endfunction()
