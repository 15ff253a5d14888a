# libcuda.so.1, made of shared memory and threads. Programs that load libcuda find it where LD_LIBRARY_PATH says so.
file(GLOB fake_cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/driver/*.c)
list(FILTER fake_cuda_sources EXCLUDE REGEX "/test_[^/]*\\.c$")
add_library(fake_cuda SHARED ${fake_cuda_sources})
target_link_libraries(fake_cuda PRIVATE tutti_flags tests_blocks Threads::Threads m)
set(fake_cuda_folder ${CMAKE_CURRENT_BINARY_DIR}/cuda/driver)
# Thread-local memory that glibc allocates is freed beside ThreadSanitizer, which then reports races.
target_compile_options(fake_cuda PRIVATE -ftls-model=initial-exec)
target_compile_options(tests_blocks PRIVATE -ftls-model=initial-exec)
# Its threads never end, so it is never unloaded.
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda VERSION 1 SOVERSION 1
	LIBRARY_OUTPUT_DIRECTORY ${fake_cuda_folder} LINK_OPTIONS "-Wl,-z,nodelete")
# And a cuBLAS made of it, for examples/gpt_cuda.
add_library(fake_cublas SHARED cuda/cublas/cublas.c)
target_link_libraries(fake_cublas PRIVATE tutti_flags fake_cuda)
set_target_properties(fake_cublas PROPERTIES OUTPUT_NAME cublas VERSION 13 SOVERSION 13
	LIBRARY_OUTPUT_DIRECTORY ${fake_cuda_folder})

# tutti_fake_cuda(TEST FAKE_CUDA_DEVICES=4 ...): the test's programs load this driver, with these settings:
#     FAKE_CUDA_DEVICES=1            how many GPUs
#     FAKE_CUDA_PEERS=all            which reach each other: all, none, or pairs such as 0-1,2-3
#     FAKE_CUDA_MEMORY=4294967296    bytes of each; it takes what is used
#     FAKE_CUDA_SMS=8                multiprocessors of each
#     FAKE_CUDA_BLOCKS_PER_SM=1      blocks that one holds: further ones wait, as on a GPU
#     FAKE_CUDA_MPS=0                1: devices say that kernels of other processes run beside ours (MPS)
#     FAKE_CUDA_CONNECTIONS=0        so many queues to a GPU, 32 at most, which streams share; 0: each stream has its own;
#                                    cuda: as many as CUDA_DEVICE_MAX_CONNECTIONS says, 8 by default, as a driver has
#     FAKE_CUDA_VMM=1                0: no cuMemCreate
#     FAKE_CUDA_FDS=1                0: no descriptors of its memory
#     FAKE_CUDA_FABRIC=0             1: fabric handles of its memory; 2: devices say so, but creation with them fails
#     FAKE_CUDA_MULTICAST=0          1: multicast objects
#     FAKE_CUDA_WAITS_64=1           0: streams do not wait for words of 64 bits
#     FAKE_CUDA_MACHINE=file         processes with the same file have the same GPUs, and take turns with kernels
#     FAKE_CUDA_DMA_BUF=0            1: memory has dma-bufs; 2: what adapters write has to be flushed
#     FAKE_CUDA_DMA_BUF_LACKS=n      but the n-th GPU's driver has none; FAKE_CUDA_DMA_BUF_REFUSES=n: it gives none
#     FAKE_CUDA_DELAY=seed           threads yield at random
#     FAKE_CUDA_FAULTS=seed:what=n,...  errors on purpose: cuda/driver/faults.c
#     FAKE_CUDA_FAULTS_RANK=n        in the process with this RANK only
# Staging by turns is 16 windows, which the driver maps and unmaps with each kernel: they are smaller here.
function(tutti_fake_cuda test)
	set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "LD_LIBRARY_PATH=${fake_cuda_folder}"
		TUTTI_WINDOW_BYTES=1048576 ${ARGN})
endfunction()
