# The gradients and losses of the example's own layers.
target_sources(test_train_gpt PRIVATE ${PROJECT_SOURCE_DIR}/examples/gpt/gpt.c
	${PROJECT_SOURCE_DIR}/examples/gpt/model.c ${PROJECT_SOURCE_DIR}/examples/gpt/layers.c)
