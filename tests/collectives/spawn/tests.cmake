add_executable(spawn_main collectives/spawn/spawn_main.c)
target_link_libraries(spawn_main PRIVATE tutti_warnings tutti)
foreach(example average evaluate)
	add_executable(example_${example} ${PROJECT_SOURCE_DIR}/examples/calls/${example}.c)
	target_link_libraries(example_${example} PRIVATE tutti m)
	# The same, of which a rank dies.
	add_executable(dying_${example} ${CMAKE_CURRENT_LIST_DIR}/dying_call_main.c
		${PROJECT_SOURCE_DIR}/examples/calls/${example}.c)
	target_link_libraries(dying_${example} PRIVATE tutti m)
	target_link_options(dying_${example} PRIVATE LINKER:--wrap=tutti_all_reduce)
endforeach()
