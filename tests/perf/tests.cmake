# The parts of the driver that these tests are about, with the library's objects instead of the library.
set(perf_sources ${PROJECT_SOURCE_DIR}/perf)
target_sources(test_values PRIVATE ${perf_sources}/values.c ${perf_sources}/elements.c)
target_sources(test_perf_options PRIVATE ${perf_sources}/options.c ${perf_sources}/elements.c)
