# The sources of the device communicators, for CUDA's libraries here and for the emulation in tests/cuda_emulation.
set(METP_COMM_DEVICE_KERNELS hold.cu)
set(METP_COMM_DEVICE_SOURCES
  communication_stream.cc device_communicator.cc device_transport.cc hop_log.cc local_device.cc
  local_device_communicators.cc loopback.cc)
set(METP_COMM_NCCL_SOURCES nccl_communicator.cc nccl_error.cc nccl_peers.cc nccl_transport.cc)
list(TRANSFORM METP_COMM_DEVICE_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM METP_COMM_DEVICE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM METP_COMM_NCCL_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/../nccl/)
