# The gradients and losses of the example's own layers.
foreach(name test_gpt_layers test_gpt_axes)
	target_sources(${name} PRIVATE ${gpt_model})
	foreach(source layers host)
		target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/examples/gpt/${source}.c)
	endforeach()
endforeach()
# Counts the memory of tutti_mem_alloc.
target_link_options(test_memory_estimate PRIVATE LINKER:--wrap=tutti_mem_alloc)
target_link_options(test_memory_limit PRIVATE LINKER:--wrap=tutti_mem_alloc)
target_link_options(test_resident_memory PRIVATE LINKER:--wrap=tutti_mem_alloc LINKER:--wrap=tutti_mem_free)
# Watches writes, syncs and renames.
foreach(name open pwrite ftruncate fallocate fsync mkdir rename rmdir)
	target_link_options(test_checkpoint_order PRIVATE LINKER:--wrap=${name})
endforeach()
# One rank's disk is full.
target_link_options(test_save_full_disk PRIVATE LINKER:--wrap=fallocate LINKER:--wrap=pwrite)
# A disk that answers no more.
target_link_options(test_checkpoint_disk PRIVATE LINKER:--wrap=pwrite)
target_link_options(test_offload_full_disk PRIVATE LINKER:--wrap=posix_fallocate)
# Watches where a rank begins to wait.
foreach(name work_wait all_gather all_reduce)
	target_link_options(test_exposed_seconds PRIVATE LINKER:--wrap=tutti_${name})
endforeach()
# Counts how often hooks test what is in flight.
target_link_options(test_trainer_rules PRIVATE LINKER:--wrap=tutti_work_test)
target_link_options(test_trainer_failures PRIVATE LINKER:--wrap=tutti_work_wait)
# A rank dies at each of its calls.
foreach(name all_reduce all_gather all_gatherv reduce_scatterv broadcast work_wait)
	target_link_options(test_continue_deaths PRIVATE LINKER:--wrap=tutti_${name})
	target_link_options(test_continue_mesh PRIVATE LINKER:--wrap=tutti_${name})
endforeach()
# examples/recover, of which ranks die (test_recover.sh).
add_executable(mortal_main train/mortal_main.c ${PROJECT_SOURCE_DIR}/examples/recover/in_place.c
	${PROJECT_SOURCE_DIR}/examples/recover/perceptron.c)
target_link_libraries(mortal_main PRIVATE tutti_warnings tutti_train m)
foreach(name trainer_create trainer_continue step recover)
	target_link_options(mortal_main PRIVATE LINKER:--wrap=tutti_${name})
endforeach()
# Trainers on GPUs: those of the fake driver. tests/cuda/gpu.c has what a program needs of CUDA.
tutti_test_helpers(cuda)
foreach(name across training checkpoint continue failures mapped offload rules)
	target_link_libraries(test_device_${name} PRIVATE ${helpers})
	add_dependencies(test_device_${name} fake_cuda)
	tutti_fake_cuda(train/device/test_device_${name} FAKE_CUDA_DEVICES=2)
endforeach()
# Two GPUs a rank.
foreach(name training checkpoint continue failures rules)
	tutti_fake_cuda(train/device/test_device_${name} FAKE_CUDA_DEVICES=4)
endforeach()
# The launches of kernels are looked at.
tutti_fake_cuda(train/device/test_device_mapped FAKE_CUDA_DEVICES=8)
target_link_options(test_device_mapped PRIVATE LINKER:--wrap=cuda_channels_launch)
# Counts what the trainer's calls are for.
tutti_fake_cuda(train/device/test_device_across FAKE_CUDA_DEVICES=4)
foreach(name all_gatherv reduce_scatterv)
	target_link_options(test_device_across PRIVATE LINKER:--wrap=tutti_${name})
endforeach()
# Counts allocations of a step.
target_link_options(test_data_parallel_bytes PRIVATE LINKER:--wrap=malloc LINKER:--wrap=calloc LINKER:--wrap=realloc)
