# Collectives are tried on the proof kind's memory too.
tutti_test_helpers(core/memory)
target_link_libraries(tests_collectives PUBLIC tests_core_memory)
foreach(source IN LISTS sources)
	if(source MATCHES "^collectives/")
		get_filename_component(name ${source} NAME_WE)
		target_link_libraries(${name} PRIVATE tests_core_memory)
	endif()
endforeach()
# All numbers of ranks, and all orders, which script/test --whole tries under sanitizers: both take minutes there, an hour
# on a machine that is busy.
if(CMAKE_C_FLAGS MATCHES "-fsanitize")
	set_tests_properties(collectives/plan/test_plans PROPERTIES TIMEOUT 3600)
endif()
