# The parts of the driver that these tests are about, with the library's objects instead of the library.
set(driver ${PROJECT_SOURCE_DIR}/perf)
target_sources(test_values PRIVATE ${driver}/values.c ${driver}/elements.c)
target_sources(test_perf_options PRIVATE ${driver}/options.c ${driver}/elements.c)
target_sources(test_bench PRIVATE ${driver}/bench.c ${driver}/stamps.c ${driver}/values.c ${driver}/elements.c)

# Benchmarks that go wrong.
foreach(name wrong)
	tutti_program(${name}_perf perf/${name}_main.c)
	target_include_directories(${name}_perf PRIVATE ${PROJECT_SOURCE_DIR})
	target_link_libraries(${name}_perf PRIVATE perf_tutti perf_driver)
endforeach()
