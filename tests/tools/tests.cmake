# What tutti-plan is made of, and the simulated network to compare it with.
foreach(name test_plan_check test_plan_damage test_plan_clock test_plan_costs test_plan_layout test_plan_units)
	target_link_libraries(${name} PRIVATE tutti_plan_objects)
endforeach()
target_link_libraries(test_plan_clock PRIVATE tests_collectives tests_memory)

# What tutti-trace is made of; and ranks to look at, which do what they are told.
foreach(name test_trace_damage test_trace_merge)
	target_link_libraries(${name} PRIVATE tutti_trace_objects)
endforeach()
add_executable(trace_main tools/trace_main.c)
target_link_libraries(trace_main PRIVATE tutti_warnings tutti Threads::Threads)
add_executable(trace_page_main tools/trace_page_main.c)
target_link_libraries(trace_page_main PRIVATE tutti_objects)
if(HAS_VERBS)
	target_link_libraries(adapters_plugin PRIVATE fake_verbs)
	target_include_directories(adapters_plugin PRIVATE ${PROJECT_SOURCE_DIR})
endif()
target_sources(test_rows PRIVATE ${PROJECT_SOURCE_DIR}/tools/tutti-top/rows.c)
