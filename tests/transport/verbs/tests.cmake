target_link_options(test_verbs_registered PRIVATE LINKER:--wrap=malloc,--wrap=calloc,--wrap=free)
