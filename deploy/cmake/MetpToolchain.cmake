# Compiler-wide settings: warnings as errors on our own code, ccache and mold where they are installed, how many compilers
# may run at once, sanitizers and fuzzing.
option(METP_FUZZ "Build the fuzz targets (needs clang)" OFF)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# A source with gRPC's headers takes about 1 GB to compile: on a machine with many cores and little memory, fewer at once.
cmake_host_system_information(RESULT metp_memory QUERY TOTAL_PHYSICAL_MEMORY)  # MiB
math(EXPR metp_compilers "${metp_memory} / 1200 + 1")
set_property(GLOBAL PROPERTY JOB_POOLS metp_compile=${metp_compilers})
set(CMAKE_JOB_POOL_COMPILE metp_compile)

add_library(metp_warnings INTERFACE)
# nvcc's own intermediate code is not ours to keep pedantic.
target_compile_options(metp_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wno-unused-parameter;-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-Werror;-Werror=all-warnings;--expt-relaxed-constexpr>)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(metp_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
else()
  # g++ 12 sees an overlap in std::string's operator+ that cannot happen (GCC bug 105329).
  target_compile_options(metp_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(METP_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
elseif(METP_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=thread)
elseif(METP_SANITIZE)
  message(FATAL_ERROR "METP_SANITIZE is '${METP_SANITIZE}'; expected address, thread or nothing")
endif()

if(METP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "METP_FUZZ needs clang, found ${CMAKE_CXX_COMPILER_ID}: configure an empty folder with "
                        "-DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
