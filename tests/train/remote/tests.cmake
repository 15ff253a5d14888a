# The layers of the example.
target_sources(test_pipeline_layers PRIVATE ${PROJECT_SOURCE_DIR}/examples/rpc_pipeline/layers.c)
# Counts the calls of a step.
foreach(name call call_async)
	target_link_options(test_remote_step PRIVATE LINKER:--wrap=tutti_rpc_${name})
endforeach()
