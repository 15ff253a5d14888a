# Collectives are tried on the proof kind's memory too.
tutti_test_helpers(memory)
target_link_libraries(tests_collectives PUBLIC tests_memory)
file(GLOB collectives_tests RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/collectives
	${CMAKE_CURRENT_SOURCE_DIR}/collectives/test_*.c)
foreach(source IN LISTS collectives_tests)
	get_filename_component(name ${source} NAME_WE)
	if(TARGET ${name})
		target_link_libraries(${name} PRIVATE tests_memory)
	endif()
endforeach()
# It loads the example of a transport; add_dependencies takes targets that come later.
add_dependencies(test_p2p_threads mailbox_plugin)
