# Ranks as threads and as processes.
file(GLOB rpc_tests RELATIVE ${PROJECT_SOURCE_DIR}/tests/rpc rpc/test_*.c)
foreach(source IN LISTS rpc_tests)
	get_filename_component(name ${source} NAME_WE)
	target_link_libraries(${name} PRIVATE tests_collectives tests_core_memory)
endforeach()
# With which timeout destroy calls it.
target_link_options(test_rpc_destroy PRIVATE LINKER:--wrap=tutti_rpc_shutdown)
