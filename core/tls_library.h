/* OpenSSL's libssl, loaded when TLS is first asked for: a program without TLS needs no OpenSSL. */
#ifndef CORE_TLS_LIBRARY_H
#define CORE_TLS_LIBRARY_H

#include <tutti/tutti.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#define TLS_FUNCTIONS(X)                                                                           \
	X(OPENSSL_init_ssl)                                                                        \
	X(ERR_clear_error)                                                                         \
	X(ERR_peek_last_error)                                                                     \
	X(ERR_reason_error_string)                                                                 \
	X(BIO_meth_new)                                                                            \
	X(BIO_meth_free)                                                                           \
	X(BIO_meth_set_read)                                                                       \
	X(BIO_meth_set_write)                                                                      \
	X(BIO_meth_set_ctrl)                                                                       \
	X(BIO_new)                                                                                 \
	X(BIO_set_init)                                                                            \
	X(BIO_set_data)                                                                            \
	X(BIO_get_data)                                                                            \
	X(BIO_set_flags)                                                                           \
	X(BIO_clear_flags)                                                                         \
	X(TLS_method)                                                                              \
	X(SSL_CTX_new)                                                                             \
	X(SSL_CTX_free)                                                                            \
	X(SSL_CTX_ctrl)                                                                            \
	X(SSL_CTX_set_options)                                                                     \
	X(SSL_CTX_clear_options)                                                                   \
	X(SSL_CTX_set_ciphersuites)                                                                \
	X(SSL_CTX_set_num_tickets)                                                                 \
	X(SSL_CTX_set_psk_use_session_callback)                                                    \
	X(SSL_CTX_set_psk_find_session_callback)                                                   \
	X(SSL_new)                                                                                 \
	X(SSL_free)                                                                                \
	X(SSL_ctrl)                                                                                \
	X(SSL_set_bio)                                                                             \
	X(SSL_set_ex_data)                                                                         \
	X(SSL_get_ex_data)                                                                         \
	X(SSL_set_connect_state)                                                                   \
	X(SSL_set_accept_state)                                                                    \
	X(SSL_set_read_ahead)                                                                      \
	X(SSL_set_default_read_buffer_len)                                                         \
	X(SSL_do_handshake)                                                                        \
	X(SSL_session_reused)                                                                      \
	X(SSL_read_ex)                                                                             \
	X(SSL_peek_ex)                                                                             \
	X(SSL_write_ex)                                                                            \
	X(SSL_has_pending)                                                                         \
	X(SSL_key_update)                                                                          \
	X(SSL_shutdown)                                                                            \
	X(SSL_get_error)                                                                           \
	X(SSL_CIPHER_find)                                                                         \
	X(SSL_SESSION_new)                                                                         \
	X(SSL_SESSION_free)                                                                        \
	X(SSL_SESSION_set1_master_key)                                                             \
	X(SSL_SESSION_set_cipher)                                                                  \
	X(SSL_SESSION_set_protocol_version)

struct tls_library {
#define FIELD(name) __typeof__(name) *name;
	TLS_FUNCTIONS(FIELD)
#undef FIELD
};

/* For all connections of the process, once it is loaded. */
extern struct tls_library openssl;

/* Stays loaded to the end of the process. UNSUPPORTED with a message that says what is missing. */
tutti_status tls_library_load(struct tls_library *library);

#endif
