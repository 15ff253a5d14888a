# The layers of the example.
target_sources(test_pipeline_layers PRIVATE ${PROJECT_SOURCE_DIR}/examples/rpc_pipeline/layers.c)
