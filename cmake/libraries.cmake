# The three libraries, each shared and static, and each made of its objects:
#     tutti          core, transport, cuda, collectives
#     tutti_rpc      rpc: uses tutti
#     tutti_train    train: uses tutti and tutti_rpc
# They show the functions of the public headers (tutti_*). libtutti and libtutti_rpc also show those marked TUTTI_PRIVATE
# (core/words/export.h; libtutti_*), under a version that names this release.
find_program(TUTTI_OBJCOPY NAMES objcopy REQUIRED)
configure_file(cmake/tutti.map.in tutti.map @ONLY)

# tutti_library(NAME OBJECTS... [USES library...] [LIBRARIES name...])
function(tutti_library name)
	cmake_parse_arguments(PARSE_ARGV 1 library "" "" "OBJECTS;USES;LIBRARIES")
	set(objects)
	foreach(target IN LISTS library_OBJECTS)
		list(APPEND objects $<TARGET_OBJECTS:${target}>)
	endforeach()

	add_library(${name} SHARED ${objects})
	target_link_libraries(${name} PUBLIC ${library_USES} PRIVATE ${library_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS} m)
	target_link_options(${name} PRIVATE -Wl,-z,defs -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/tutti.map)
	set_target_properties(${name} PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/tutti.map LINKER_LANGUAGE C
		VERSION ${PROJECT_VERSION} SOVERSION ${TUTTI_SOVERSION} INSTALL_RPATH "$ORIGIN")

	# An archive cannot hide a symbol that two of its members share. So it has one member: all objects linked
	# into one, in which hidden symbols are made local. Without section groups: of two archives' groups of one name
	# a linker keeps the first, and the other's local symbols, such as its personality routine's, would be nowhere.
	set(one_object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
	add_custom_command(OUTPUT ${one_object}
		COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${one_object} ${objects}
		COMMAND ${TUTTI_OBJCOPY} --localize-hidden ${one_object}
		DEPENDS ${objects}
		COMMENT "Linking ${name}.o, hidden symbols made local"
		COMMAND_EXPAND_LISTS VERBATIM)
	add_library(${name}_static STATIC ${one_object})
	add_dependencies(${name}_static ${library_OBJECTS})     # Makefiles do not derive it from DEPENDS
	set_source_files_properties(${one_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
	set_target_properties(${name}_static PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE C)
	list(TRANSFORM library_USES APPEND _static)
	list(TRANSFORM library_LIBRARIES REPLACE "PkgConfig::SODIUM" sodium)
	list(TRANSFORM library_LIBRARIES REPLACE "PkgConfig::JANSSON" jansson)
	target_link_libraries(${name}_static INTERFACE ${library_USES} ${library_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS} m)

	string(REPLACE tutti_ "" short ${name})
	set_target_properties(${name} PROPERTIES EXPORT_NAME ${short})
	set_target_properties(${name}_static PROPERTIES EXPORT_NAME ${short}_static)
	foreach(variant "" _static)
		target_include_directories(${name}${variant} INTERFACE
			$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
		add_library(Tutti::${short}${variant} ALIAS ${name}${variant})
	endforeach()
endfunction()

tutti_library(tutti OBJECTS tutti_objects tutti_kernels_image tutti_revision_object LIBRARIES PkgConfig::SODIUM ${TUTTI_JSON_LIBRARY})
tutti_library(tutti_rpc OBJECTS tutti_rpc_objects USES tutti)
tutti_library(tutti_train OBJECTS tutti_train_objects USES tutti tutti_rpc LIBRARIES ${TUTTI_JSON_LIBRARY})
