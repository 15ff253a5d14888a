# All orders take a while: optimised in every build. The window with the fewest slots that do: its files once more.
target_compile_options(test_window_orders PRIVATE -O2)
file(GLOB window_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/collectives/window/*.c)
add_executable(window_orders_3_slots collectives/window/test_window_orders.c ${window_sources}
	$<FILTER:$<TARGET_OBJECTS:tutti_objects>,EXCLUDE,collectives/window/[^/]*$>)
target_compile_options(window_orders_3_slots PRIVATE -O2)
target_compile_definitions(window_orders_3_slots PRIVATE WINDOW_SLOTS=3u
	$<TARGET_PROPERTY:tutti_object_flags,INTERFACE_COMPILE_DEFINITIONS>)
target_sources(window_orders_3_slots PRIVATE collectives/window/window_team.c)
target_link_libraries(window_orders_3_slots PRIVATE PkgConfig::CMOCKA tutti_object_flags $<TARGET_OBJECTS:tutti_kernels_image>)
add_test(NAME collectives/window/window_orders_3_slots COMMAND window_orders_3_slots)
tutti_test_properties(collectives/window/window_orders_3_slots collectives/window)
tutti_test_marks(collectives/window/window_orders_3_slots collectives/window/test_window_orders.c)
if(CMAKE_C_FLAGS MATCHES "-fsanitize")
	set_tests_properties(collectives/window/test_window_orders collectives/window/window_orders_3_slots
		PROPERTIES TIMEOUT 3600)
endif()
# What only works values out, in memory of one thread: ThreadSanitizer would look at every element for nothing.
if(CMAKE_C_FLAGS MATCHES "-fsanitize=thread")
	set_source_files_properties(collectives/window/window_values.c PROPERTIES COMPILE_OPTIONS "-fno-sanitize=thread;-O2")
endif()
# Every wait is a long one.
target_link_options(test_window_join PRIVATE LINKER:--wrap=long_wait_is_due LINKER:--wrap=long_wait_say)
