# Ranks as threads and processes.
foreach(name test_pipeline test_pipeline_failures)
	target_link_libraries(${name} PRIVATE tests_train)
endforeach()
