# Programs of script/gpu-test's with one GPU and the queues that a real driver gives them: what else runs on several GPUs, or
# with a queue for each stream, must not hang or fail on a machine that has one. test_turns, test_replays, test_symmetric,
# test_long_messages and test_engine_graphs are not among these: processes have queues of their own. The trainers' take long.
set(one_gpu FAKE_CUDA_DEVICES=1 FAKE_CUDA_SMS=132 FAKE_CUDA_CONNECTIONS=cuda)
foreach(name test_streams test_graphs test_captured test_scaled test_bench_gpu test_device_offload test_device test_programs
	test_across_threads test_works)
	add_test(NAME cuda/one_gpu_${name} COMMAND ${name})
	tutti_test_properties(cuda/one_gpu_${name} cuda)
	tutti_fake_cuda(cuda/one_gpu_${name} ${one_gpu})
endforeach()
foreach(n 4 8)
	api_threads_test(cuda_one_gpu ${n} FAKE_CUDA ${one_gpu} ARGUMENTS --cuda --quick ${cuda_passes})
endforeach()
foreach(label slow no_asan no_tsan)
	tutti_label_tests(${label} "^(cuda/one_gpu_|api/threads_cuda_one_gpu)")
endforeach()
