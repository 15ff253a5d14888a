# The suite over each wire that UCX has on every machine; the test's own name is tcp's.
set_property(TEST transport/ucx/test_ucx APPEND PROPERTY ENVIRONMENT "UCX_TLS=tcp,self")
add_test(NAME transport/ucx/test_ucx_sm COMMAND test_ucx)
tutti_test_properties(transport/ucx/test_ucx_sm transport/ucx)
set_property(TEST transport/ucx/test_ucx_sm APPEND PROPERTY ENVIRONMENT "UCX_TLS=sm,self")
tutti_label_tests(no_tsan "^transport/ucx/test_ucx_sm$")
tutti_label_tests(ucx "^transport/ucx/")
