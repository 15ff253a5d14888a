add_executable(launched_main launch/launched_main.c)
target_link_libraries(launched_main PRIVATE tutti_warnings tutti)

# They read tuttirun's own files.
target_sources(test_guard PRIVATE ${PROJECT_SOURCE_DIR}/launch/guard.c)
target_sources(test_words PRIVATE ${PROJECT_SOURCE_DIR}/launch/words.c)
set(letter_files letter.c options.c)
list(TRANSFORM letter_files PREPEND ${PROJECT_SOURCE_DIR}/launch/)
target_sources(test_letter PRIVATE ${letter_files})
target_link_libraries(test_letter PRIVATE program_parts)
