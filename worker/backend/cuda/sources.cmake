# The sources of the CUDA backend, for the device's compiler here and for the emulation in tests/cuda_emulation.
set(METP_CUDA_KERNELS
  activation.cu attention_delta.cu attention_merge.cu elementwise.cu embedding.cu flash_bf16_backward.cu flash_bf16_forward.cu
  flash_f32_backward.cu flash_f32_forward.cu loss.cu norm.cu optimizer.cu rope.cu sums.cu tiled_softmax.cu)
set(METP_CUDA_SOURCES
  attention_tiled.cc cuda_backend.cc cuda_error.cc cuda_host_link.cc event_pool.cc gemm.cc library_attention.cc memory_pool.cc)
list(TRANSFORM METP_CUDA_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM METP_CUDA_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
