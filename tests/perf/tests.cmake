# The parts of the driver that these tests are about, with the library's objects instead of the library.
set(driver ${PROJECT_SOURCE_DIR}/perf)
target_sources(test_values PRIVATE ${driver}/values.c ${driver}/elements.c)
target_sources(test_perf_options PRIVATE ${driver}/options.c ${driver}/elements.c)
target_sources(test_bench PRIVATE ${driver}/bench.c ${driver}/values.c ${driver}/elements.c)

# A benchmark that goes wrong.
tutti_program(wrong_perf perf/wrong_main.c ${driver}/perf.c ${driver}/options.c ${driver}/elements.c
	${driver}/values.c ${driver}/bench.c ${driver}/table.c ${driver}/start.c)
target_include_directories(wrong_perf PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(wrong_perf PRIVATE Threads::Threads)
