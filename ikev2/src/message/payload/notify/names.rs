//! The types of notify messages in IANA's registry.

/// The names of one list, in both directions.
macro_rules! notify_types {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// The type of a notify payload. Errors have numbers below 16384 (RFC 7296 3.10.1).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum NotifyType {
            $(#[doc = $name] $variant,)*
            /// A number without a name here. INVARIANT: none of the above.
            Other(u16),
        }

        impl NotifyType {
            /// The type of this number.
            pub fn from_number(number: u16) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// Its number.
            pub fn number(self) -> u16 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Other(number) => number,
                }
            }

            /// Its name in the registry.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($name),)*
                    Self::Other(_) => None,
                }
            }
        }
    };
}

notify_types! {
    UnsupportedCriticalPayload = 1, "UNSUPPORTED_CRITICAL_PAYLOAD";
    InvalidIkeSpi = 4, "INVALID_IKE_SPI";
    InvalidMajorVersion = 5, "INVALID_MAJOR_VERSION";
    InvalidSyntax = 7, "INVALID_SYNTAX";
    InvalidMessageId = 9, "INVALID_MESSAGE_ID";
    InvalidSpi = 11, "INVALID_SPI";
    NoProposalChosen = 14, "NO_PROPOSAL_CHOSEN";
    InvalidKePayload = 17, "INVALID_KE_PAYLOAD";
    AuthenticationFailed = 24, "AUTHENTICATION_FAILED";
    SinglePairRequired = 34, "SINGLE_PAIR_REQUIRED";
    NoAdditionalSas = 35, "NO_ADDITIONAL_SAS";
    InternalAddressFailure = 36, "INTERNAL_ADDRESS_FAILURE";
    FailedCpRequired = 37, "FAILED_CP_REQUIRED";
    TsUnacceptable = 38, "TS_UNACCEPTABLE";
    InvalidSelectors = 39, "INVALID_SELECTORS";
    UnacceptableAddresses = 40, "UNACCEPTABLE_ADDRESSES";
    UnexpectedNatDetected = 41, "UNEXPECTED_NAT_DETECTED";
    UseAssignedHoa = 42, "USE_ASSIGNED_HOA";
    TemporaryFailure = 43, "TEMPORARY_FAILURE";
    ChildSaNotFound = 44, "CHILD_SA_NOT_FOUND";
    InvalidGroupId = 45, "INVALID_GROUP_ID";
    AuthorizationFailed = 46, "AUTHORIZATION_FAILED";
    StateNotFound = 47, "STATE_NOT_FOUND";
    TsMaxQueue = 48, "TS_MAX_QUEUE";
    InitialContact = 16384, "INITIAL_CONTACT";
    SetWindowSize = 16385, "SET_WINDOW_SIZE";
    AdditionalTsPossible = 16386, "ADDITIONAL_TS_POSSIBLE";
    IpcompSupported = 16387, "IPCOMP_SUPPORTED";
    NatDetectionSourceIp = 16388, "NAT_DETECTION_SOURCE_IP";
    NatDetectionDestinationIp = 16389, "NAT_DETECTION_DESTINATION_IP";
    Cookie = 16390, "COOKIE";
    UseTransportMode = 16391, "USE_TRANSPORT_MODE";
    HttpCertLookupSupported = 16392, "HTTP_CERT_LOOKUP_SUPPORTED";
    RekeySa = 16393, "REKEY_SA";
    EspTfcPaddingNotSupported = 16394, "ESP_TFC_PADDING_NOT_SUPPORTED";
    NonFirstFragmentsAlso = 16395, "NON_FIRST_FRAGMENTS_ALSO";
    MobikeSupported = 16396, "MOBIKE_SUPPORTED";
    AdditionalIp4Address = 16397, "ADDITIONAL_IP4_ADDRESS";
    AdditionalIp6Address = 16398, "ADDITIONAL_IP6_ADDRESS";
    NoAdditionalAddresses = 16399, "NO_ADDITIONAL_ADDRESSES";
    UpdateSaAddresses = 16400, "UPDATE_SA_ADDRESSES";
    Cookie2 = 16401, "COOKIE2";
    NoNatsAllowed = 16402, "NO_NATS_ALLOWED";
    AuthLifetime = 16403, "AUTH_LIFETIME";
    MultipleAuthSupported = 16404, "MULTIPLE_AUTH_SUPPORTED";
    AnotherAuthFollows = 16405, "ANOTHER_AUTH_FOLLOWS";
    RedirectSupported = 16406, "REDIRECT_SUPPORTED";
    Redirect = 16407, "REDIRECT";
    RedirectedFrom = 16408, "REDIRECTED_FROM";
    TicketLtOpaque = 16409, "TICKET_LT_OPAQUE";
    TicketRequest = 16410, "TICKET_REQUEST";
    TicketAck = 16411, "TICKET_ACK";
    TicketNack = 16412, "TICKET_NACK";
    TicketOpaque = 16413, "TICKET_OPAQUE";
    LinkId = 16414, "LINK_ID";
    UseWespMode = 16415, "USE_WESP_MODE";
    RohcSupported = 16416, "ROHC_SUPPORTED";
    EapOnlyAuthentication = 16417, "EAP_ONLY_AUTHENTICATION";
    ChildlessIkev2Supported = 16418, "CHILDLESS_IKEV2_SUPPORTED";
    QuickCrashDetection = 16419, "QUICK_CRASH_DETECTION";
    Ikev2MessageIdSyncSupported = 16420, "IKEV2_MESSAGE_ID_SYNC_SUPPORTED";
    IpsecReplayCounterSyncSupported = 16421, "IPSEC_REPLAY_COUNTER_SYNC_SUPPORTED";
    Ikev2MessageIdSync = 16422, "IKEV2_MESSAGE_ID_SYNC";
    IpsecReplayCounterSync = 16423, "IPSEC_REPLAY_COUNTER_SYNC";
    SecurePasswordMethods = 16424, "SECURE_PASSWORD_METHODS";
    PskPersist = 16425, "PSK_PERSIST";
    PskConfirm = 16426, "PSK_CONFIRM";
    ErxSupported = 16427, "ERX_SUPPORTED";
    IfomCapability = 16428, "IFOM_CAPABILITY";
    GroupSender = 16429, "GROUP_SENDER";
    Ikev2FragmentationSupported = 16430, "IKEV2_FRAGMENTATION_SUPPORTED";
    SignatureHashAlgorithms = 16431, "SIGNATURE_HASH_ALGORITHMS";
    CloneIkeSaSupported = 16432, "CLONE_IKE_SA_SUPPORTED";
    CloneIkeSa = 16433, "CLONE_IKE_SA";
    Puzzle = 16434, "PUZZLE";
    UsePpk = 16435, "USE_PPK";
    PpkIdentity = 16436, "PPK_IDENTITY";
    NoPpkAuth = 16437, "NO_PPK_AUTH";
    IntermediateExchangeSupported = 16438, "INTERMEDIATE_EXCHANGE_SUPPORTED";
    Ip4Allowed = 16439, "IP4_ALLOWED";
    Ip6Allowed = 16440, "IP6_ALLOWED";
    AdditionalKeyExchange = 16441, "ADDITIONAL_KEY_EXCHANGE";
    UseAggfrag = 16442, "USE_AGGFRAG";
    SupportedAuthMethods = 16443, "SUPPORTED_AUTH_METHODS";
    SaResourceInfo = 16444, "SA_RESOURCE_INFO";
    UsePpkInt = 16445, "USE_PPK_INT";
    PpkIdentityKey = 16446, "PPK_IDENTITY_KEY";
}
