# Ranks as threads and processes.
foreach(name test_pipeline test_pipeline_bubble test_pipeline_failures test_pipeline_forward
		test_pipeline_trainer test_evaluation_trainer test_pipeline_callbacks)
	target_link_libraries(${name} PRIVATE tests_train)
endforeach()
