# The API's tests as a program, and what starts its ranks. They need no cmocka, so that script/gpu-test has them everywhere.
set(api_sources api_main.c batch.c buffer.c data.c endings.c errors.c
	messages.c own_ops.c part.c part_issue.c passes.c programs.c reports.c split.c survivors.c ../cuda/gpu.c)
list(TRANSFORM api_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

add_executable(api ${api_sources})
target_link_libraries(api PRIVATE tutti_warnings tutti Threads::Threads m ${CMAKE_DL_LIBS})
target_include_directories(api PRIVATE ${PROJECT_SOURCE_DIR})
add_executable(ranks ${CMAKE_CURRENT_LIST_DIR}/ranks_main.c)
target_link_libraries(ranks PRIVATE tutti_warnings)
add_executable(hold_gpus ${CMAKE_CURRENT_LIST_DIR}/../cuda/hold_gpus_main.c ${CMAKE_CURRENT_LIST_DIR}/../cuda/gpu.c)
target_link_libraries(hold_gpus PRIVATE tutti_warnings tutti Threads::Threads ${CMAKE_DL_LIBS})
target_include_directories(hold_gpus PRIVATE ${PROJECT_SOURCE_DIR})
