# Ranks on GPUs: those of the fake driver. script/gpu-test runs many of these programs on real ones.
tutti_test_helpers(core/memory)
set(memory_helpers ${helpers})
tutti_test_helpers(collectives)
foreach(name test_across_threads test_captured test_engine_graphs test_legacy_stream test_graphs test_scaled test_streams test_device
	test_programs test_works)
	target_link_libraries(${name} PRIVATE ${memory_helpers} ${helpers})
	add_dependencies(${name} fake_cuda)
	tutti_fake_cuda(cuda/${name} FAKE_CUDA_SMS=64)
endforeach()
add_dependencies(api_objects fake_cuda)

foreach(name test_driver_errors test_kept_streams test_line test_long_messages test_misuse test_replays test_symmetric
	test_turn_buffers test_turns)
	add_dependencies(${name} fake_cuda)
	tutti_fake_cuda(cuda/${name} FAKE_CUDA_DEVICES=3)
endforeach()
add_dependencies(test_residency fake_cuda)
tutti_fake_cuda(cuda/test_residency TUTTI_WINDOW_BYTES=65536)
add_dependencies(test_multicast fake_cuda)
tutti_fake_cuda(cuda/test_multicast FAKE_CUDA_DEVICES=8 FAKE_CUDA_MULTICAST=1)
add_dependencies(test_across fake_cuda)
tutti_fake_cuda(cuda/test_across FAKE_CUDA_DEVICES=8)
target_link_options(test_across_threads PRIVATE LINKER:--wrap=comm_describe)

# Two emulated nodes, over the fake of tests/verbs/fake.
if(HAS_VERBS)
	target_link_libraries(test_direct PRIVATE fake_verbs)
	target_link_options(test_direct PRIVATE LINKER:--wrap=env_load)
	add_dependencies(test_direct fake_cuda)
	tutti_fake_cuda(cuda/test_direct FAKE_CUDA_DEVICES=8 FAKE_CUDA_DMA_BUF=1)
	# direct_test(NAME ARGUMENT variable=value...)
	function(direct_test name argument)
		add_test(NAME cuda/direct_${name} COMMAND test_direct ${argument})
		tutti_test_properties(cuda/direct_${name} cuda)
		tutti_fake_cuda(cuda/direct_${name} FAKE_CUDA_DEVICES=8 ${ARGN})
	endfunction()
	direct_test(refused refused FAKE_CUDA_DMA_BUF=1 FAKE_CUDA_DMA_BUF_REFUSES=1)
	direct_test(lacks refused FAKE_CUDA_DMA_BUF=1 FAKE_CUDA_DMA_BUF_LACKS=1)
	direct_test(flushed flushed FAKE_CUDA_DMA_BUF=2)
	direct_test(adapter adapter FAKE_CUDA_DMA_BUF=1)
	direct_test(shm calls FAKE_CUDA_DMA_BUF=1 TUTTI_TRANSPORTS=shm,verbs)
	direct_test(across calls FAKE_CUDA_DMA_BUF=1 TUTTI_CUDA=2 FAKE_CUDA_SMS=64)
	tutti_label_tests(slow "^cuda/direct_(refused|lacks|shm|across)$")
	tutti_label_tests(no_tsan "^cuda/direct_(refused|lacks|shm)$")
	tutti_label_tests(no_asan "^cuda/direct_(lacks|shm)$")
endif()

# The API's tests on device buffers: processes that share one GPU, or two GPUs, or have one each, and threads.
set(cuda_passes world errors messages small large bits flight programs)
# Those that share one keep off each other's kernels, so that one that waits for another process never ends; with little
# staging their calls take several turns.
foreach(n_and_window "1 8388608" "2 65536" "4 262144" "8 1048576")
	separate_arguments(n_and_window)
	list(GET n_and_window 0 n)
	list(GET n_and_window 1 window_bytes)
	api_test(cuda ${n} RANKS -e TUTTI_WINDOW_BYTES=${window_bytes} ARGUMENTS --cuda --quick ${cuda_passes})
	tutti_fake_cuda(api/cuda_${n} FAKE_CUDA_MACHINE=${CMAKE_CURRENT_BINARY_DIR}/cuda_${n}.machine)
endforeach()
# Two processes of two ranks, whose devices follow each other.
api_test(cuda_local_ranks 2 ARGUMENTS --local-ranks 2 --cuda --quick ${cuda_passes})
tutti_fake_cuda(api/cuda_local_ranks_2 FAKE_CUDA_DEVICES=4 FAKE_CUDA_MACHINE=${CMAKE_CURRENT_BINARY_DIR}/cuda_local.machine)
api_test(cuda_gpus 3 ARGUMENTS --cuda --quick ${cuda_passes})
tutti_fake_cuda(api/cuda_gpus_3 FAKE_CUDA_DEVICES=3)
api_test(cuda_pairs 4 ARGUMENTS --cuda --quick ${cuda_passes})
tutti_fake_cuda(api/cuda_pairs_4 FAKE_CUDA_DEVICES=2 FAKE_CUDA_MACHINE=${CMAKE_CURRENT_BINARY_DIR}/cuda_pairs.machine)
# Two nodes whose ranks have a GPU each, and three of which each has one GPU for two processes.
api_test(cuda_2_nodes 4 RANKS -m 2 ARGUMENTS --cuda --quick ${cuda_passes})
tutti_fake_cuda(api/cuda_2_nodes_4 FAKE_CUDA_DEVICES=4)
api_test(cuda_3_nodes 6 RANKS -m 3 ARGUMENTS --cuda --quick ${cuda_passes})
tutti_fake_cuda(api/cuda_3_nodes_6 FAKE_CUDA_MACHINE=${CMAKE_CURRENT_BINARY_DIR}/cuda_3_nodes.machine)
foreach(way shm tcp)
	api_test(cuda_${way} 3 RANKS ${${way}_ranks} ARGUMENTS --cuda --quick ${cuda_passes})
	tutti_fake_cuda(api/cuda_${way}_3)
endforeach()
api_threads_test(cuda 3 ARGUMENTS --cuda --quick ${cuda_passes})
# A seed with which one rank destroys a communicator while another's kernel waits for it in a second one.
api_threads_test(cuda_destroy 2 ENVIRONMENT SEED=2 FAKE_CUDA FAKE_CUDA_SMS=64 ARGUMENTS --cuda --quick programs)
api_threads_test(cuda_tcp 2 ENVIRONMENT ${tcp} FAKE_CUDA FAKE_CUDA_DEVICES=2 ARGUMENTS --cuda --quick ${cuda_passes})
# The layers of examples/gpt_cuda beside those of examples/gpt, whose names get a prefix.
add_library(cpu_layers OBJECT ${PROJECT_SOURCE_DIR}/examples/gpt/layers.c)
target_link_libraries(cpu_layers PRIVATE tutti_flags)
foreach(layer clear widen embed_forward embed_backward add linear_forward linear_backward
	layernorm_forward layernorm_backward attention_forward attention_backward attention_scratch gelu_forward gelu_backward
	softmax_loss)
	target_compile_definitions(cpu_layers PRIVATE ${layer}=cpu_${layer})
endforeach()
target_sources(test_gpt_kernels PRIVATE ${PROJECT_SOURCE_DIR}/examples/gpt_cuda/layers.c
	${PROJECT_SOURCE_DIR}/examples/gpt_cuda/matmul.c)
target_link_libraries(test_gpt_kernels PRIVATE cpu_layers)
# On the fake driver, as that program.
foreach(name test_gpt_stream test_gpt_matmul)
	foreach(source gpu layers matmul)
		target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/examples/gpt_cuda/${source}.c)
	endforeach()
	add_dependencies(${name} fake_cublas)
	tutti_fake_cuda(cuda/${name})
endforeach()
target_sources(test_gpt_stream PRIVATE ${gpt_model})
# A GPU for each of as many ranks as there may be here.
api_test(cuda_gpus 8 ARGUMENTS --cuda --quick ${cuda_passes})
tutti_fake_cuda(api/cuda_gpus_8 FAKE_CUDA_DEVICES=8)
api_threads_test(cuda_gpus 4 FAKE_CUDA FAKE_CUDA_DEVICES=4 FAKE_CUDA_DELAY=4 ARGUMENTS --cuda --quick ${cuda_passes})
include(cuda/one_gpu.cmake)

# Its driver has the GPU's.
add_dependencies(test_dma_buf fake_cuda)
tutti_fake_cuda(core/memory/test_dma_buf FAKE_CUDA_DMA_BUF=1)

# What training does on GPUs.
foreach(name test_gpt_stream test_train_kernels)
	target_link_libraries(${name} PRIVATE tutti_train_with_objects)
endforeach()
