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

# All orders take a while: optimised in every build. The window with the fewest slots that do: its files once more.
target_compile_options(test_window_orders PRIVATE -O2)
file(GLOB window_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/collectives/window*.c)
add_executable(window_orders_3_slots collectives/test_window_orders.c ${window_sources}
	$<FILTER:$<TARGET_OBJECTS:tutti_objects>,EXCLUDE,collectives/window[^/]*$>)
target_compile_options(window_orders_3_slots PRIVATE -O2)
target_compile_definitions(window_orders_3_slots PRIVATE WINDOW_SLOTS=3u
	$<TARGET_PROPERTY:tutti_objects,INTERFACE_COMPILE_DEFINITIONS>)
target_sources(window_orders_3_slots PRIVATE collectives/window_team.c)
target_link_libraries(window_orders_3_slots PRIVATE PkgConfig::CMOCKA
	$<TARGET_PROPERTY:tutti_objects,INTERFACE_LINK_LIBRARIES>)
add_test(NAME collectives/window_orders_3_slots COMMAND window_orders_3_slots)
tutti_test_properties(collectives/window_orders_3_slots collectives)
tutti_test_marks(collectives/window_orders_3_slots collectives/test_window_orders.c)
# A rank that dies at the question that it is to answer.
target_link_options(test_grow_verdict PRIVATE LINKER:--wrap=comm_ask)
# A message that is lost with its connection, and one that breaks before the other rank comes.
target_link_options(test_council PRIVATE LINKER:--wrap=council_link_done LINKER:--wrap=council_link_open)
# A rank that has no memory for an agreement.
target_link_options(test_abort_recovery PRIVATE LINKER:--wrap=agreement_init)
# A child whose other ranks start when one has given up.
target_link_options(test_split_connect PRIVATE LINKER:--wrap=comm_start LINKER:--wrap=comm_connect_unless)
# All numbers of ranks, and all orders, which script/test --whole tries under sanitizers: both take minutes there, an hour
# on a machine that is busy.
if(CMAKE_C_FLAGS MATCHES "-fsanitize")
	set_tests_properties(collectives/test_plans PROPERTIES TIMEOUT 3600)
	set_tests_properties(collectives/test_window_orders collectives/window_orders_3_slots PROPERTIES TIMEOUT 3600)
endif()
# What only works values out, in memory of one thread: ThreadSanitizer would look at every element for nothing.
if(CMAKE_C_FLAGS MATCHES "-fsanitize=thread")
	set_source_files_properties(collectives/window_values.c PROPERTIES COMPILE_OPTIONS "-fno-sanitize=thread;-O2")
endif()
