# What tutti-plan is made of, and the simulated network to compare it with.
foreach(name test_plan_check test_plan_damage test_plan_clock test_plan_units)
	target_link_libraries(${name} PRIVATE tutti_plan_objects)
endforeach()
target_link_libraries(test_plan_clock PRIVATE tests_collectives tests_memory)
