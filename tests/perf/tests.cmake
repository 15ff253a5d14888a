# The parts of the driver that these tests are about, with the library's objects instead of the library.
set(driver ${PROJECT_SOURCE_DIR}/perf)
target_sources(test_values PRIVATE ${driver}/values.c ${driver}/elements.c)
target_sources(test_perf_options PRIVATE ${driver}/options.c ${driver}/elements.c ${driver}/collectives.c ${driver}/values.c)
target_link_libraries(test_perf_options PRIVATE program_parts)
target_sources(test_stamps PRIVATE ${driver}/stamps.c)
target_sources(test_bench PRIVATE ${driver}/bench.c ${driver}/collectives.c ${driver}/gpu_rank.c ${driver}/stamps.c ${driver}/values.c ${driver}/elements.c)

# Benchmarks that go wrong: the collective's program and what spoils its calls.
set(wraps all_reduce all_gather reduce_scatter broadcast reduce gather scatter all_to_all send recv group_end barrier)
list(TRANSFORM wraps PREPEND "LINKER:--wrap=tutti_")
add_library(sabotage OBJECT perf/sabotage_main.c)
target_link_libraries(sabotage PUBLIC tutti_warnings)
target_include_directories(sabotage PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_options(sabotage INTERFACE ${wraps})
foreach(collective all_reduce all_gather reduce_scatter broadcast reduce gather scatter all_to_all sendrecv barrier)
	tutti_program(wrong_${collective}_perf ${driver}/main.c)
	target_compile_definitions(wrong_${collective}_perf PRIVATE COLLECTIVE="${collective}")
	target_link_libraries(wrong_${collective}_perf PRIVATE sabotage perf_tutti perf_driver)
endforeach()

# MPI's ranks spin: next to another test both would be slow.
set_tests_properties(perf/test_openmpi perf/test_mpich PROPERTIES PROCESSORS 6)

# Stands for all benchmark programs where their times must be known.
add_executable(fake_perf perf/fake_main.c)
target_link_libraries(fake_perf PRIVATE tutti_warnings)

# On the GPUs of the fake driver.
target_sources(test_bench_gpu PRIVATE ${driver}/bench.c ${driver}/collectives.c ${driver}/gpu_rank.c
	${driver}/stamps.c ${driver}/values.c ${driver}/elements.c ${CMAKE_CURRENT_SOURCE_DIR}/cuda/gpu.c)
add_dependencies(test_bench_gpu fake_cuda)
tutti_fake_cuda(perf/test_bench_gpu)
target_link_libraries(nccl_plugin PRIVATE tutti)
