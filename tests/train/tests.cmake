# The gradients and losses of the example's own layers.
target_sources(test_train_gpt PRIVATE ${PROJECT_SOURCE_DIR}/examples/gpt/gpt.c
	${PROJECT_SOURCE_DIR}/examples/gpt/model.c ${PROJECT_SOURCE_DIR}/examples/gpt/layers.c)
# What is taken from tutti_mem_alloc is counted.
target_link_options(test_train_memory PRIVATE LINKER:--wrap=tutti_mem_alloc)
target_link_options(test_train_limit PRIVATE LINKER:--wrap=tutti_mem_alloc)
target_link_options(test_train_resident PRIVATE LINKER:--wrap=tutti_mem_alloc LINKER:--wrap=tutti_mem_free)
# What is written, synced and renamed is watched.
foreach(name open pwrite ftruncate fsync mkdir rename rmdir)
	target_link_options(test_train_checkpoint_order PRIVATE LINKER:--wrap=${name})
endforeach()
# Where a rank begins to wait is watched.
foreach(name work_wait all_gather all_reduce)
	target_link_options(test_train_exposed PRIVATE LINKER:--wrap=tutti_${name})
endforeach()
# How often hooks look at what is under way is counted.
target_link_options(test_train_misuse PRIVATE LINKER:--wrap=tutti_work_test)
target_link_options(test_train_failures PRIVATE LINKER:--wrap=tutti_work_wait)
