//! Which payloads there are (RFC 7296 3.2 and IANA's registry).

use super::number::numbers;

numbers! {
    /// The number of a payload type, as it travels in the Next Payload field in front of the payload.
    PayloadType(u8) {
        NONE = 0, "none";
        SECURITY_ASSOCIATION = 33, "SA";
        KEY_EXCHANGE = 34, "KE";
        IDENTIFICATION_INITIATOR = 35, "IDi";
        IDENTIFICATION_RESPONDER = 36, "IDr";
        CERTIFICATE = 37, "CERT";
        CERTIFICATE_REQUEST = 38, "CERTREQ";
        AUTHENTICATION = 39, "AUTH";
        NONCE = 40, "Nonce";
        NOTIFY = 41, "N";
        DELETE = 42, "D";
        VENDOR_ID = 43, "V";
        TRAFFIC_SELECTORS_INITIATOR = 44, "TSi";
        TRAFFIC_SELECTORS_RESPONDER = 45, "TSr";
        ENCRYPTED = 46, "SK";
        CONFIGURATION = 47, "CP";
        EAP = 48, "EAP";
        ENCRYPTED_FRAGMENT = 53, "SKF";
    }
}
