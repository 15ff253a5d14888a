# Ranks as threads and as processes, whose blocks are tried on the proof kind's memory too.
file(GLOB block_tests RELATIVE ${PROJECT_SOURCE_DIR}/tests/train/blocks train/blocks/test_*.c)
foreach(source IN LISTS block_tests)
	get_filename_component(name ${source} NAME_WE)
	target_link_libraries(${name} PRIVATE tests_collectives tests_core_memory)
endforeach()
