# Ranks on GPUs: those of the fake driver, unless TUTTI_GPU_TESTS names a real one's.
tutti_test_helpers(memory)
set(memory_helpers ${helpers})
tutti_test_helpers(collectives)
target_link_libraries(test_streams PRIVATE ${memory_helpers} ${helpers})
