add_executable(spawn_main spawn/spawn_main.c)
target_link_libraries(spawn_main PRIVATE tutti_warnings tutti)
