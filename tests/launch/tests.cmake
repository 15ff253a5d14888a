# It reads tuttirun's own file.
target_sources(test_guard PRIVATE ${PROJECT_SOURCE_DIR}/launch/guard.c)
target_sources(test_claims PRIVATE ${PROJECT_SOURCE_DIR}/launch/claims.c)
