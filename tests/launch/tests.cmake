add_executable(launched_main launch/launched_main.c)
target_link_libraries(launched_main PRIVATE tutti_warnings tutti)

# It reads tuttirun's own file.
target_sources(test_guard PRIVATE ${PROJECT_SOURCE_DIR}/launch/guard.c)
target_sources(test_claims PRIVATE ${PROJECT_SOURCE_DIR}/launch/claims.c)
